#ifndef BALLAST_SERVER_COMMAND_DRAW_CANVAS_MAT_H_
#define BALLAST_SERVER_COMMAND_DRAW_CANVAS_MAT_H_

#include <opencv2/core/mat.hpp>

#include "server/command/draw/canvas.h"

namespace ballast {

// Makes OpenCV run each call on the thread that makes it, in the whole program.
// Code that calls OpenCV without a canvas must call this first. Safe to repeat,
// from any thread.
void KeepOpenCvOnOneThread();

// The pixels of a canvas for OpenCV, in the order R, G, B. Valid as long as the
// canvas lives and is not moved.
cv::Mat GetMat(Canvas* canvas);

// As Canvas::FillForm, in a matrix of any number of channels.
void FillFormIn(Form form, const Box& box, const cv::Scalar& value,
                cv::Mat* mat);

inline cv::Scalar GetScalar(Rgb color) {
  return cv::Scalar(color.r, color.g, color.b);
}

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_CANVAS_MAT_H_
