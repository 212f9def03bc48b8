"""The demos: whole systems on scripted models, offline."""
