/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/coordinator/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"

int sw_state_path(const char *state_dir, const char *group, char **path, struct sw_error *e)
{
    if (!group[0] || group[0] == '.' || strchr(group, '/'))
        return sw_fail(e, SW_ERR_INVALID,
            "group '%s' can't name a state file: it must not be empty, begin with '.' or hold '/'",
            group);
    if (mkdir(state_dir, 0750) && errno != EEXIST)
        return sw_fail_errno(e, SW_ERR_IO, errno,
            "state directory %s can't be made (make it, writable for this user, or name another "
            "one)",
            state_dir);
    if (access(state_dir, W_OK | X_OK))
        return sw_fail_errno(e, SW_ERR_IO, errno,
            "state directory %s can't be written to (give it to this user, or name another one)",
            state_dir);
    if (asprintf(path, "%s/%s.version", state_dir, group) < 0)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the path of the state file");
    return 0;
}

/* Digits and at most one newline. */
static int parse(const char *text, size_t length, uint64_t *version)
{
    uint64_t value = 0;

    if (length && text[length - 1] == '\n')
        length--;
    if (length == 0)
        return -1;
    for (size_t i = 0; i < length; i++) {
        const uint64_t digit = (uint64_t)(text[i] - '0');

        if (text[i] < '0' || text[i] > '9' || value > (UINT64_MAX - digit) / 10)
            return -1;
        value = value * 10 + digit;
    }
    *version = value;
    return 0;
}

static const char advice[] = "it keeps version numbers from being used twice: write the largest "
                             "version ever begun into it, as one decimal number";

/* Reads up to `size` bytes; the number of them, or -1 with errno. */
static ssize_t read_all(int fd, char *out, size_t size)
{
    size_t used = 0;

    while (used < size) {
        const ssize_t n = read(fd, out + used, size - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    return (ssize_t)used;
}

int sw_state_load(const char *path, uint64_t *version, struct sw_error *e)
{
    char text[64];
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), err;

    if (fd < 0 && errno == ENOENT) {
        *version = 0;
        return 0;
    }
    if (fd < 0)
        return sw_fail_errno(
            e, SW_ERR_IO, errno, "state file %s can't be opened (%s)", path, advice);
    n = read_all(fd, text, sizeof(text));
    err = errno;
    close(fd);
    if (n < 0)
        return sw_fail_errno(e, SW_ERR_IO, err, "state file %s can't be read (%s)", path, advice);
    if (n == (ssize_t)sizeof(text) || parse(text, (size_t)n, version))
        return sw_fail(
            e, SW_ERR_INVALID, "state file %s holds no version number (%s)", path, advice);
    return 0;
}

static int write_all(int fd, const char *text, size_t length)
{
    while (length) {
        const ssize_t n = write(fd, text, length);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        text += n;
        length -= (size_t)n;
    }
    return 0;
}

static int write_file(const char *path, uint64_t version, struct sw_error *e)
{
    char text[32];
    const int length = snprintf(text, sizeof(text), "%" PRIu64 "\n", version);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    int err = 0;

    if (fd < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "%s can't be made", path);
    if (write_all(fd, text, (size_t)length) || fsync(fd))
        err = sw_fail_errno(e, SW_ERR_IO, errno, "%s can't be written", path);
    if (close(fd) && !err)
        err = sw_fail_errno(e, SW_ERR_IO, errno, "%s can't be written", path);
    return err;
}

static int sync_directory(const char *path, struct sw_error *e)
{
    char *directory = strdup(path);
    int fd, err = 0;

    if (!directory)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to store the version");
    *strrchr(directory, '/') = '\0';
    fd = open(directory[0] ? directory : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd))
        err = sw_fail_errno(e, SW_ERR_IO, errno, "directory %s can't be synced", directory);
    if (fd >= 0)
        close(fd);
    free(directory);
    return err;
}

int sw_state_store(const char *path, uint64_t version, struct sw_error *e)
{
    char *aside;
    int err;

    if (asprintf(&aside, "%s.new", path) < 0)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to store the version");
    err = write_file(aside, version, e);
    if (!err && rename(aside, path))
        err = sw_fail_errno(e, SW_ERR_IO, errno, "%s can't be replaced", path);
    if (err)
        unlink(aside);
    else
        err = sync_directory(path, e);
    free(aside);
    return err;
}
