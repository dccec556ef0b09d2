"""One module for each schema version; its revision is the version's number."""
