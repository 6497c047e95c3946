package main

func descriptorLimit() int { return maxDescriptors }
