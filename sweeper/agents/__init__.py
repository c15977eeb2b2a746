"""The tools that coding agents call, over the protocol MCP. Only this folder uses the library mcp.

What a tool does to a study is defined in `sweep` and `control`.
"""
