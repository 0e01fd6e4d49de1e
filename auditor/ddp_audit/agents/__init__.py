"""Answers for programs that write and repair training code: a server of the Model Context Protocol (`ddp-audit mcp`)."""
