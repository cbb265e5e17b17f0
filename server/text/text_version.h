#ifndef BALLAST_SERVER_TEXT_TEXT_VERSION_H_
#define BALLAST_SERVER_TEXT_TEXT_VERSION_H_

namespace ballast {

// Version of the rules that turn texts into tokens and labels. Must be raised
// whenever the same text and settings yield others, or another number of them:
// indexes of other versions are then measured anew, and servers of different
// versions refuse each other. A template, a tokenizer or a setting that was
// refused before raises nothing.
inline constexpr int kTextVersion = 3;

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEXT_VERSION_H_
