// Takes most of the static thread-local space that the loader keeps for libraries loaded later.
__thread char tls_hog[1024] __attribute__((tls_model("initial-exec"))) = {1};

char *tls_hog_touch(void);

char *tls_hog_touch(void) {
    tls_hog[1]++;
    return tls_hog;
}
