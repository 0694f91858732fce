"""The methods that EX2 is compared with, one file each."""
