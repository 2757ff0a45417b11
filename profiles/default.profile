# What hakmem does without a profile: a name for it, to start from.
profile_format=1
