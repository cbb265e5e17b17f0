#ifndef BALLAST_SERVER_COMMAND_PREVIEW_PREVIEW_HTML_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_PREVIEW_HTML_H_

namespace ballast {

// preview.html with preview.css and preview.js inserted by the build.
extern const char kPreviewHtml[];

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_PREVIEW_HTML_H_
