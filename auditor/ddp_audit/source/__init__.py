"""Reading a project: which files, their trees, settings and suppression comments. Nothing in it is executed."""

from ddp_audit.source.files import SourceError, SourceFile, display_path
from ddp_audit.source.project import Project

__all__ = ["Project", "SourceError", "SourceFile", "display_path"]
