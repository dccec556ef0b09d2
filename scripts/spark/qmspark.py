"""The entry point of qmspark for spark-submit, which wants a file; its arguments are those of the program."""

import sys

from qmadmin.spark.program import main

sys.exit(main(sys.argv[1:]))
