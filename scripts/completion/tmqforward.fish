# Completion of tmqforward in fish: the program itself says what can follow.
_TMQFORWARD_COMPLETE=fish_source tmqforward | source
