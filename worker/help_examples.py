"""Examples below a command's help."""


def examples(*commands: str) -> str:
    """Return an epilog with one example a line, which nothing fills up."""
    return "\n".join(["\b", "Examples:", *(f"  chargeonce {command}" for command in commands)])
