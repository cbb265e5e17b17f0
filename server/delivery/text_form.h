#ifndef BALLAST_SERVER_DELIVERY_TEXT_FORM_H_
#define BALLAST_SERVER_DELIVERY_TEXT_FORM_H_

#include "server/corpus/sample_source.h"
#include "server/text/model_text.h"

namespace ballast {

// Converts the corpus's text format to the text library's: neither library
// knows the other.
inline TextForm FormOf(RawSample::TextFormat format) {
  switch (format) {
    case RawSample::TextFormat::kConversation:
      return TextForm::kConversation;
    case RawSample::TextFormat::kPlain:
      return TextForm::kDocument;
    case RawSample::TextFormat::kPackedBytes:
      return TextForm::kPackedBytes;
    case RawSample::TextFormat::kPackedJson:
      break;
  }
  return TextForm::kPackedJson;
}

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_TEXT_FORM_H_
