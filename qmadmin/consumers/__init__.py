"""Consumers: they take messages off queues and call a handler with each: a function, a service, any `Handler`.

A `Consumer` knows which queues it serves, with which handler and by which `Policy`. Its `Dispatcher` watches them in
the main thread and makes the `WorkerPool` of each start workers, within the common `ConcurrencyLimit`. A worker makes
the `Processor` of its queue take a message, call the handler, queue the reply and commit, or roll back. A queue that
cannot be served at present is paused (`Backoff`). Calls whose time is over are ended (`RunningCalls`). The outcomes of
calls are counted (`Statistics`) and logged (`FailureLog`). Nothing here requires a program: no settings, no services
file, no daemon.
"""
