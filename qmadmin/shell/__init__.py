"""The command interpreter of qmadmin.

Each command is declared once (`declare`), in the module of its topic (`devices`, `spaces`, `queues`, ...). Parsing and
prompts (`read`), help (`session_commands`), the man page and completion (`complete`) derive from that declaration. The
handlers return data, a screen (`qmadmin.console`) draws it, and the `interpreter` connects them.
"""
