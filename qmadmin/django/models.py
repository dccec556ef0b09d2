"""No models: Django tells only applications that have this module of the end of a migration."""
