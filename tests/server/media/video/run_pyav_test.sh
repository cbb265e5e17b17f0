#!/usr/bin/env bash
# Runs pyav_test.py with BALLAST_PYTHON, or python3.
exec "${BALLAST_PYTHON:-python3}" tests/server/media/video/pyav_test.py
