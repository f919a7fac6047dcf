# Generated from the sources by typings/generate.py: do not edit. To refresh: tox -e fresh

