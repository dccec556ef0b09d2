"""The generated parts of the manual pages, in roff, each made of the declarations that the programs work with.

`roff` writes roff; `programs` writes of options, settings and commands, `services` of what the forwarder calls,
`interfaces` of ATMI, the MIB and archives, `diagnostics` of errors. `roff` also finds the examples of a page, so that
the tests can run them. No program loads any of this.
"""
