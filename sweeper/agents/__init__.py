"""What coding agents use of this package. The only owner of mcp.

What a tool does to a study belongs to `sweep` and `control`.
"""
