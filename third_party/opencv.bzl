"""Options to compile code that includes OpenCV's headers, which have a separate folder."""

OPENCV_COPTS = ["-isystem/usr/include/opencv4"]
