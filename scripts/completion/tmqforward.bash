# Completion of tmqforward in bash: the program itself says what can follow.
eval "$(_TMQFORWARD_COMPLETE=bash_source tmqforward)"
