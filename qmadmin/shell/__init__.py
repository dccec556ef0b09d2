"""The command interpreter of qmadmin.

Each command is declared once (`declare`) in a chapter (`devices`, `spaces`, `queues`, `control`); parsing and prompts
(`read`), help (`help`), the man page (`manpage`) and completion (`complete`) are faces of that declaration. Handlers
return data (`results`), a screen (`render`, `styled`) draws it, and the loop (`interpreter`) joins them.
"""
