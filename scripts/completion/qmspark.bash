# Completion of qmspark in bash: the program itself says what can follow.
eval "$(_QMSPARK_COMPLETE=bash_source qmspark)"
