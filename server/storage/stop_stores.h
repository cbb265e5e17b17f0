#ifndef BALLAST_SERVER_STORAGE_STOP_STORES_H_
#define BALLAST_SERVER_STORAGE_STOP_STORES_H_

namespace ballast {

// Stops the AWS library if a store has started it; no object of S3 can be read
// afterwards. To be called at the end of main, while all objects of the libraries
// still exist. Waits for requests in flight. (An exit handler calls it, too, for
// programs that do not.)
void StopStores();

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_STOP_STORES_H_
