"""What happens on the roads of a city: scenes, the traffic that is generated from them, and the truth about it."""
