"""One file a projector; its name is the projector's name on the command line."""
