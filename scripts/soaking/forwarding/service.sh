#!/bin/sh
# The service that is a command: as service.py beside it. In 1000 calls 60 fail, 10 hang and 10 die.
read -r name fate
chance=$(($(od -An -N2 -tu2 /dev/urandom) % 1000))
if [ "$fate" = bad ] || [ "$chance" -lt 60 ]; then
    echo "no answer to $name" >&2
    exit 1
elif [ "$chance" -lt 70 ]; then
    sleep 4
elif [ "$chance" -lt 80 ]; then
    kill -9 $$
fi
printf 'answer to %s' "$name"
