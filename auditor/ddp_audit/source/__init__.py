"""Reading a project: which files, their trees, settings and suppression comments. Nothing in it is executed."""
