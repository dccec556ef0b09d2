"""What takes messages off queues and has a handler work on each: a function, a service, whatever is a `Handler`.

A `Consumer` knows which queues it serves, with which handler and by which `Policy`. Its `Dispatcher` watches them in
the main thread and has the `WorkerPool` of each start workers, within the `ConcurrencyLimit` of all. A worker has the
`Processor` of its queue take a message, call the handler, queue the reply and commit, or roll back; a queue for which
nothing can be done is left alone for a while (`Backoff`). Calls whose time is over are ended (`RunningCalls`). What
comes of calls is counted (`Statistics`) and logged (`FailureLog`). All of it needs no program: no settings, no file of
services, no daemon.
"""
