"""The command interpreter of qmadmin.

Each command is declared once (`declare`) in a chapter (`devices`, `spaces`, `queues` and the others in `catalogue`).
Parsing and prompts (`read`), help (`session_commands`), the man page (`qmadmin.manual.programs`) and completion
(`complete`) are faces of that declaration. Handlers return data (`qmadmin.console.results`), a screen
(`qmadmin.console.render`, `styled`) draws it, and the loop (`interpreter`) joins them.
"""
