#ifndef BALLAST_SERVER_HTTP_PAGE_HTML_H_
#define BALLAST_SERVER_HTTP_PAGE_HTML_H_

namespace ballast {

// page.html with page.css and page.js inserted by the build.
extern const char kPageHtml[];

}  // namespace ballast

#endif  // BALLAST_SERVER_HTTP_PAGE_HTML_H_
