/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/error.h"

#define LL(x) ((unsigned long long)(x))

int sw_file_open(
    int dir, const char *folder, const char *name, int *fd, uint64_t *bytes, struct sw_error *e)
{
    struct stat st;
    /* Not blocking, so that a FIFO in the folder is refused instead of waited for. */
    const int f = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (f < 0)
        return sw_fail_errno(
            e, errno == ENOENT ? SW_ERR_NOT_FOUND : SW_ERR_IO, errno, "%s/%s", folder, name);
    if (fstat(f, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(f);
        return sw_fail(e, SW_ERR_INVALID, "%s/%s is no regular file", folder, name);
    }
    *fd = f;
    *bytes = (uint64_t)st.st_size;
    return 0;
}

int sw_file_pread(
    int fd, const char *name, void *buffer, size_t n, uint64_t offset, struct sw_error *e)
{
    for (size_t done = 0; done < n;) {
        const ssize_t r = pread(fd, (char *)buffer + done, n - done, (off_t)(offset + done));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return sw_fail_errno(e, SW_ERR_IO, errno, "read %s", name);
        if (r == 0)
            return sw_fail(e, SW_ERR_INVALID, "%s ends at %llu, %llu bytes wanted", name,
                LL(offset + done), LL(offset + n));
        done += (size_t)r;
    }
    return 0;
}

int sw_file_pwrite(
    int fd, const char *name, const void *buffer, size_t n, uint64_t offset, struct sw_error *e)
{
    for (size_t done = 0; done < n;) {
        const ssize_t r = pwrite(fd, (const char *)buffer + done, n - done, (off_t)(offset + done));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return sw_fail_errno(e, SW_ERR_IO, errno, "write %s", name);
        done += (size_t)r;
    }
    return 0;
}

int sw_file_read(int dir, const char *folder, const char *name, uint64_t max, char **text,
    size_t *length, struct sw_error *e)
{
    uint64_t bytes;
    char *buffer;
    int fd, code;

    code = sw_file_open(dir, folder, name, &fd, &bytes, e);
    if (code)
        return code;
    if (bytes > max) {
        close(fd);
        return sw_fail(e, SW_ERR_LIMIT, "%s/%s: %llu bytes, at most %llu are read", folder, name,
            LL(bytes), LL(max));
    }
    buffer = malloc(bytes + 1);
    code = buffer ? sw_file_pread(fd, name, buffer, bytes, 0, e)
                  : sw_fail(e, SW_ERR_NOMEM, "no memory for the %llu bytes of %s/%s", LL(bytes),
                        folder, name);
    close(fd);
    if (code) {
        free(buffer);
        return code;
    }
    buffer[bytes] = '\0';
    *text = buffer;
    *length = bytes;
    return 0;
}
