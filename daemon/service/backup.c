/* Backups: copies of the database that clients take away. There is one at a time, made by a thread of its own, which is
 * nicer than the workers; its file loses its name as soon as it is verified, so that nothing is left of it when the
 * daemon ends. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/service/internal.h"

/* Room that is left for the database itself. */
static const uint64_t spare_bytes = UINT64_C(64) << 20;

/* How long one that nobody takes is kept. */
static const uint64_t keep_ns = UINT64_C(15) * 60 * 1000000000;

enum { NICER = 10 };

static const char *const state_names[] = {
    [BP_BACKUP_NONE] = NULL,     [BP_BACKUP_COPYING] = "copying", [BP_BACKUP_VERIFYING] = "verifying",
    [BP_BACKUP_READY] = "ready", [BP_BACKUP_FAILED] = "failed",
};

/* ---- The file ---- */

static char *path_of(const struct bp_service *service, const char *suffix)
{
    char *path = NULL;
    return asprintf(&path, "%s.backup%s", service->files[0], suffix) < 0 ? NULL : path;
}

/* Whatever a backup that did not end has left. */
static void remove_leftovers(const struct bp_service *service)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char *path = path_of(service, suffixes[i]);
        if (path)
            unlink(path);
        free(path);
    }
}

static int check_room(const struct bp_service *service, struct bp_err *err)
{
    struct statvfs room;
    struct stat file[2] = {{0}};
    stat(service->files[0], &file[0]);
    stat(service->files[1], &file[1]);
    uint64_t wanted = (uint64_t)file[0].st_size + (uint64_t)file[1].st_size + spare_bytes;
    if (statvfs(service->files[0], &room))
        return bp_fail(err, BP_E_storage_failed, "", "the room for a copy: %s", strerror(errno));
    uint64_t bytes = (uint64_t)room.f_bavail * room.f_frsize;
    if (bytes < wanted)
        return bp_fail(err, BP_E_storage_failed, "",
                       "a copy may take %llu bytes beside the database, and %llu are free", (unsigned long long)wanted,
                       (unsigned long long)bytes);
    return 0;
}

struct first_defect {
    char words[256];
};

static void note_defect(void *data, const struct bp_store_defect *defect)
{
    struct first_defect *first = data;
    if (!*first->words)
        snprintf(first->words, sizeof first->words, "%s %s: %s", defect->table, defect->key, defect->reason);
}

static int verify_copy(struct bp_backup *backup, const char *path, struct bp_err *err)
{
    struct first_defect first = {""};
    struct bp_store_verified done;
    const struct bp_store_verifier verifier = {.defect = note_defect, .data = &first, .stop = &backup->stop};
    if (bp_store_verify(path, &verifier, &done, err) < 0)
        return -1;
    if (done.defects)
        return bp_fail(err, BP_E_storage_failed, "", "the database has %llu defects: %s",
                       (unsigned long long)done.defects, first.words);
    return 0;
}

static int digest_file(int fd, uint64_t n, struct bp_digest *ret, struct bp_err *err)
{
    void *bytes = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return bp_fail(err, BP_E_out_of_memory, "", "the copy cannot be mapped: %s", strerror(errno));
    bp_digest_of(bytes, n, ret);
    munmap(bytes, n);
    return 0;
}

/* From here on the descriptor is all there is of the file. */
static int take_file(struct bp_backup *backup, const char *path, struct bp_err *err)
{
    struct stat status;
    struct bp_digest digest;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) || unlink(path)) {
        bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (digest_file(fd, (uint64_t)status.st_size, &digest, err) < 0) {
        close(fd);
        return -1;
    }
    pthread_mutex_lock(&backup->lock);
    backup->fd = fd;
    backup->bytes = (uint64_t)status.st_size;
    backup->digest = digest;
    pthread_mutex_unlock(&backup->lock);
    return 0;
}

/* ---- The thread ---- */

static void move(struct bp_backup *backup, enum bp_backup_state state)
{
    pthread_mutex_lock(&backup->lock);
    backup->state = state;
    backup->ended_at = bp_clock_ns();
    pthread_mutex_unlock(&backup->lock);
}

static int make(struct bp_service *service, struct bp_err *err)
{
    struct bp_backup *backup = &service->backup;
    char *path = path_of(service, "");
    if (!path)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for a backup");
    int result = check_room(service, err);
    if (result == 0)
        result = bp_store_backup(service->store, path, &backup->copy, err);
    if (result == 0) {
        move(backup, BP_BACKUP_VERIFYING);
        result = verify_copy(backup, path, err);
    }
    if (result == 0)
        result = take_file(backup, path, err);
    free(path);
    if (result < 0)
        remove_leftovers(service);
    return result;
}

static void note_last(struct bp_backup *backup)
{
    pthread_mutex_lock(&backup->lock);
    backup->last.at = (uint64_t)bp_now_us() * 1000;
    backup->last.took = bp_clock_ns() - backup->began_at;
    backup->last.bytes = backup->bytes;
    pthread_mutex_unlock(&backup->lock);
}

static void *backup_main(void *data)
{
    struct bp_service *service = data;
    struct bp_err err = {0};
    pthread_setname_np(pthread_self(), "bp-backup");
    setpriority(PRIO_PROCESS, 0, NICER); /* of this thread alone */
    const int result = make(service, &err);
    bp_metrics_count_by(service->metrics, BP_COUNTERS_LONG_JOBS_ENDED, BP_LONG_BACKUP,
                        result == 0 ? BP_LONG_DONE : BP_LONG_FAILED, 0);
    if (result == 0) {
        note_last(&service->backup);
        bp_log(BP_LOG_INFO, "a backup is ready", BP_LOG_FIELDS(BP_LOG_UINT("bytes", service->backup.bytes)));
        move(&service->backup, BP_BACKUP_READY);
        return NULL;
    }
    bp_log_err(BP_LOG_ERROR, "a backup failed", &err);
    pthread_mutex_lock(&service->backup.lock);
    service->backup.err = err;
    pthread_mutex_unlock(&service->backup.lock);
    move(&service->backup, BP_BACKUP_FAILED);
    return NULL;
}

static bool is_under_way(const struct bp_backup *backup)
{
    return backup->state == BP_BACKUP_COPYING || backup->state == BP_BACKUP_VERIFYING;
}

/* Under the lock; the thread has ended or is about to. */
static void forget(struct bp_backup *backup)
{
    if (backup->fd >= 0)
        close(backup->fd);
    backup->fd = -1;
    backup->state = BP_BACKUP_NONE;
}

void bp_backup_init(struct bp_service *service)
{
    pthread_mutex_init(&service->backup.lock, NULL);
    service->backup.fd = -1;
    service->backup.copy.stop = &service->backup.stop;
    remove_leftovers(service);
}

void bp_backup_stop(struct bp_service *service)
{
    struct bp_backup *backup = &service->backup;
    atomic_store(&backup->stop, true);
    if (backup->has_thread)
        pthread_join(backup->thread, NULL);
    backup->has_thread = false;
}

void bp_backup_release(struct bp_service *service)
{
    forget(&service->backup);
    pthread_mutex_destroy(&service->backup.lock);
}

void bp_service_tidy_up(struct bp_service *service)
{
    struct bp_backup *backup = &service->backup;
    pthread_mutex_lock(&backup->lock);
    if (backup->state != BP_BACKUP_NONE && !is_under_way(backup) && bp_clock_ns() > backup->ended_at + keep_ns)
        forget(backup);
    pthread_mutex_unlock(&backup->lock);
}

void bp_backup_gauges(struct bp_service *service, uint64_t gauges[BP_GAUGE_N])
{
    struct bp_backup *backup = &service->backup;
    pthread_mutex_lock(&backup->lock);
    const bool was_ready = backup->last.at != 0;
    gauges[BP_GAUGE_LONG_JOBS] += is_under_way(backup);
    gauges[BP_GAUGE_BACKUP_AT] = was_ready ? backup->last.at : BP_UNKNOWN;
    gauges[BP_GAUGE_BACKUP_TOOK] = was_ready ? backup->last.took : BP_UNKNOWN;
    gauges[BP_GAUGE_BACKUP_BYTES] = was_ready ? backup->last.bytes : BP_UNKNOWN;
    pthread_mutex_unlock(&backup->lock);
}

/* ---- Answers ---- */

static void write_number(struct bp_writer *writer, const char *key, uint64_t value)
{
    bp_writer_key(writer, key);
    bp_writer_uint(writer, value);
}

/* Under the lock. */
static void write_backup(struct bp_writer *writer, const struct bp_backup *backup)
{
    char time[BP_TIME_TEXT];
    bp_time_format(backup->created_at, time);
    bp_writer_object(writer);
    bp_writer_key(writer, "id");
    bp_writer_digest(writer, &backup->id);
    bp_writer_key(writer, "state");
    bp_writer_string(writer, state_names[backup->state]);
    bp_writer_key(writer, "created_at");
    bp_writer_string(writer, time);
    write_number(writer, "pages", atomic_load(&backup->copy.pages));
    write_number(writer, "all_pages", atomic_load(&backup->copy.all_pages));
    if (backup->state == BP_BACKUP_READY) {
        write_number(writer, "bytes", backup->bytes);
        bp_writer_key(writer, "digest");
        bp_writer_digest(writer, &backup->digest);
    }
    if (backup->state == BP_BACKUP_FAILED) {
        bp_writer_key(writer, "problem");
        bp_plan_diagnostic_write(writer, &backup->err);
    }
    bp_writer_end(writer);
}

/* Under the lock. */
static struct bp_answer *answer_of(const struct bp_backup *backup, int status)
{
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    write_backup(&writer, backup);
    struct bp_answer *answer = bp_service_written(&writer, status, &err);
    if (status == 202 && answer->status == 202) {
        char id[BP_DIGEST_TEXT];
        bp_digest_format(&backup->id, id);
        snprintf(answer->location, sizeof answer->location, "/v1/admin/backups/%s", id);
    }
    return answer;
}

/* Under the lock, none being under way. */
static int begin(struct bp_service *service, struct bp_err *err)
{
    struct bp_backup *backup = &service->backup;
    if (backup->has_thread)
        pthread_join(backup->thread, NULL); /* it has ended: it takes the lock for the last time before */
    backup->has_thread = false;
    forget(backup);
    backup->err = (struct bp_err){0};
    backup->created_at = bp_now_us();
    backup->began_at = bp_clock_ns();
    atomic_store(&backup->copy.pages, 0);
    atomic_store(&backup->copy.all_pages, 0);
    if (bp_service_name(service, "backup", backup->created_at, &backup->id, err) < 0)
        return -1;
    backup->state = BP_BACKUP_COPYING;
    int failure = pthread_create(&backup->thread, NULL, backup_main, service);
    if (failure) {
        backup->state = BP_BACKUP_NONE;
        return bp_fail(err, BP_E_out_of_memory, "", "no thread for a backup: %s", strerror(failure));
    }
    backup->has_thread = true;
    return 0;
}

struct bp_answer *bp_service_backup_create(struct bp_service *service)
{
    struct bp_backup *backup = &service->backup;
    struct bp_err err = {0};
    struct bp_answer *answer;
    pthread_mutex_lock(&backup->lock);
    if (!is_under_way(backup) && begin(service, &err) < 0)
        answer = bp_problem_of(&err, NULL);
    else
        answer = answer_of(backup, 202);
    pthread_mutex_unlock(&backup->lock);
    return answer;
}

/* Under the lock: whether `text` names the one there is. */
static struct bp_answer *find(const struct bp_backup *backup, const char *text)
{
    static const char scheme[] = "sha256:";
    char id[BP_DIGEST_TEXT];
    bp_digest_format(&backup->id, id);
    const char *hex = strncmp(text, scheme, sizeof scheme - 1) == 0 ? text + sizeof scheme - 1 : text;
    size_t n = strlen(hex);
    if (n < 8 || n > 64 || strspn(hex, "0123456789abcdef") != n)
        return bp_problem_say(BP_E_invalid_id, "",
                              "an id is 8 to 64 lower-case hex digits, with or without \"sha256:\"");
    if (backup->state == BP_BACKUP_NONE || strncmp(id + sizeof scheme - 1, hex, n) != 0)
        return bp_problem_say(BP_E_not_found, "",
                              "there is no backup %s: another was begun since, or it was not taken in time", text);
    return NULL;
}

struct bp_answer *bp_service_backup_get(struct bp_service *service, const char *id)
{
    struct bp_backup *backup = &service->backup;
    pthread_mutex_lock(&backup->lock);
    struct bp_answer *answer = find(backup, id);
    if (!answer)
        answer = answer_of(backup, 200);
    pthread_mutex_unlock(&backup->lock);
    return answer;
}

/* Under the lock. */
static struct bp_answer *file_answer(const struct bp_backup *backup)
{
    if (backup->state == BP_BACKUP_FAILED)
        return bp_problem_of(&backup->err, NULL);
    if (backup->state != BP_BACKUP_READY)
        return bp_problem_say(BP_E_not_ready, "", "the backup is not made yet");
    return bp_answer_file(200, BP_MEDIA_SQLITE, backup->fd, backup->bytes);
}

struct bp_answer *bp_service_backup_file(struct bp_service *service, const char *id)
{
    struct bp_backup *backup = &service->backup;
    pthread_mutex_lock(&backup->lock);
    struct bp_answer *answer = find(backup, id);
    if (!answer)
        answer = file_answer(backup);
    pthread_mutex_unlock(&backup->lock);
    return answer;
}

struct bp_answer *bp_service_backup_drop(struct bp_service *service, const char *id)
{
    struct bp_backup *backup = &service->backup;
    pthread_mutex_lock(&backup->lock);
    struct bp_answer *answer = find(backup, id);
    if (!answer && is_under_way(backup))
        answer = bp_problem_say(BP_E_not_ready, "", "the backup is not made yet");
    if (!answer) {
        forget(backup);
        answer = bp_answer_static(204, NULL, "", 0);
    }
    pthread_mutex_unlock(&backup->lock);
    return answer;
}
