# Completion of qmspark in fish: the program itself says what can follow.
_QMSPARK_COMPLETE=fish_source qmspark | source
