"""Report on one run or a thousand: in two passes, in parallel, in constant memory.

units         expand RUN arguments to places with one run each
plan          find each run's baselines
worker        identify runs in the first pass, analyse and report on them in the second
workers       run the workers in parallel processes
state         record which reports a folder has, with sizes and times of the files that they are about:
              a batch continues after a stop; lock the folder; summarise runs without their tables
"""
