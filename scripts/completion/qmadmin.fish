# Completion of qmadmin in fish: the program itself says what can follow.
_QMADMIN_COMPLETE=fish_source qmadmin | source
