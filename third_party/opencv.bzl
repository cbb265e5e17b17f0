"""Options to compile what includes OpenCV's headers, which lie in a folder of their own."""

OPENCV_COPTS = ["-isystem/usr/include/opencv4"]
