# Completion of qmadmin in bash: the program itself says what can follow.
eval "$(_QMADMIN_COMPLETE=bash_source qmadmin)"
