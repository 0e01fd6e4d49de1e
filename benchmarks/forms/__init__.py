"""Form must not matter: rewritings that keep what a program does, and what the audit says of the programs that come out."""
