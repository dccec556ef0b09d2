"""The output of all programs: results as data, screens that draw them, and the texts about archives and moves."""
