"""The generated parts of the manual pages, in roff, each made of the declarations that the programs work with.

`roff` writes roff, `diagnostics`, `options`, `atmi` and `settings` a part of a page each; the commands of the shell are
written by `qmadmin.shell.manpage`. `examples` finds the examples of a page, so that the tests can run them. No program
loads any of this.
"""
