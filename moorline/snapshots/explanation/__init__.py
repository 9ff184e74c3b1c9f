"""The answer to: why is the state so large?"""
