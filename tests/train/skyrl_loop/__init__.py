"""SkyRL's own trainer on this machine."""
