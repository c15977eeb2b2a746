"""The tools that coding agents call over the protocol MCP. Only this folder uses the library mcp.

The folders `sweep` and `control` do the work of the tools.
"""
