"""The generated parts of the manual pages, in roff, made from the declarations of the programs.

`roff` writes roff; `programs` describes options, settings and commands, `services` the services of the forwarder,
`interfaces` ATMI, the MIB and archives, `diagnostics` errors. `roff` also finds the examples of a page, so that
the tests can run them. No program imports any of this.
"""
