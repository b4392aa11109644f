//! Backups: the replicated state of a cluster as it was at one position, in a file.
//!
//! ```text
//! header  magic 8 · version 4 · length 4 · about: what `Header` holds · crc 4
//! frame   crc 4 · kind 4 · length 4 · length when decompressed 4 · payload      a piece of the image each, compressed
//! end     a frame whose payload is: frames before it 8 · bytes of their pieces 8 · checksum of their crcs 4
//! ```
//!
//! A frame's `crc` (CRC32C) covers the header's, the frame's offset, its other fields and its payload, so a frame of
//! another backup, or at another place, is found out. The file ends with the end frame: one that was cut is found out.
//!
//! The image is that of [`quorate_blocks::state`], which all protocols have, so any protocol can begin with it. A
//! change of its format changes [`VERSION`].

use std::io::{self, Read, Write};

use bytes::Bytes;
use quorate_blocks::state::{LoadError, Loading, Replicated};
use quorate_core::{Wire, digest, wire_struct};
use thiserror::Error;

const MAGIC: [u8; 8] = *b"quorBAK\n";
/// Of the file's format, and of the image in it.
pub const VERSION: u32 = 1;
/// Before what the header says: magic, version, length.
const PREFIX: usize = 16;
const FRAME: usize = 16;
const END: usize = 20;
/// What a header says is shorter than this.
const LONGEST_HEADER: u32 = 4096;
/// A piece is about as large as was asked for, and two names longer at most.
const LONGEST_PIECE: usize = 4 << 20;
/// Of zstd: about as fast as disks are.
const LEVEL: i32 = 3;

const PIECE_KIND: u32 = 1;
const END_KIND: u32 = 2;

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of Quorate whose node gave the state.
    pub quorate: String,
    /// The protocol of the cluster.
    pub protocol: String,
    /// The cluster's id.
    pub cluster: u64,
    /// The node that gave the state.
    pub node: u64,
    /// How much had been executed: the last slot; where there are none, the number of instances.
    pub position: u64,
    /// When the backup began, in milliseconds since the Unix epoch, by the clock of the host that wrote it.
    pub taken_ms: u64,
}
wire_struct!(Header { quorate, protocol, cluster, node, position, taken_ms });

impl Header {
    /// The id of a cluster that begins with this backup. `initial` is the id that its `--initial-cluster` gives, and
    /// `token` what its operator says to tell it from other clusters that began with the same backup at the same
    /// addresses. It is another than that of any cluster before, so that none of their processes is let in.
    pub fn founded_cluster(&self, initial: u64, token: &str) -> u64 {
        digest(&(self.clone(), (initial, token.to_owned())).to_bytes())
    }
}

/// Why a backup is refused.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum BackupError {
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    #[error("this is no backup that Quorate wrote")]
    Foreign,
    #[error(
        "the backup has format {found}, this version of Quorate reads formats up to {VERSION}: use the version that \
         wrote it, or a newer one"
    )]
    Newer { found: u32 },
    #[error("the backup ends at offset {offset}, in the middle: it was cut short; nothing of it is used")]
    Cut { offset: u64 },
    #[error("the backup is damaged at offset {offset}: {what}; nothing of it is used")]
    Damaged { offset: u64, what: String },
}

/// Writes a backup. Without [`finish`](Writer::finish) it is one that was cut short.
pub struct Writer<W: Write> {
    out: W,
    compressor: zstd::bulk::Compressor<'static>,
    seed: u32,
    offset: u64,
    frames: u64,
    bytes: u64,
    checksum: u32,
}

impl<W: Write> Writer<W> {
    /// Begins with the header.
    pub fn new(mut out: W, header: &Header) -> io::Result<Writer<W>> {
        let about = header.to_bytes();
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&(about.len() as u32).to_le_bytes());
        head.extend_from_slice(&about);
        let seed = crc32c::crc32c(&head);
        head.extend_from_slice(&seed.to_le_bytes());
        out.write_all(&head)?;
        let compressor = zstd::bulk::Compressor::new(LEVEL)?;
        Ok(Writer { out, compressor, seed, offset: head.len() as u64, frames: 0, bytes: 0, checksum: 0 })
    }

    /// The next piece of the image.
    pub fn piece(&mut self, piece: &[u8]) -> io::Result<()> {
        if piece.len() > LONGEST_PIECE {
            return Err(io::Error::other(format!("a piece of {} bytes is longer than any", piece.len())));
        }
        let compressed = self.compressor.compress(piece)?;
        let crc = self.frame(PIECE_KIND, piece.len(), &compressed)?;
        self.frames += 1;
        self.bytes += piece.len() as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, &crc.to_le_bytes());
        Ok(())
    }

    /// Bytes written, and bytes of the pieces in them.
    pub fn progress(&self) -> (u64, u64) {
        (self.offset, self.bytes)
    }

    /// After the last piece. Gives back what it was written to, which the caller syncs.
    pub fn finish(mut self) -> io::Result<W> {
        let mut end = [0; END];
        end[..8].copy_from_slice(&self.frames.to_le_bytes());
        end[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        end[16..].copy_from_slice(&self.checksum.to_le_bytes());
        self.frame(END_KIND, END, &end)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn frame(&mut self, kind: u32, raw: usize, payload: &[u8]) -> io::Result<u32> {
        let mut head = [0; FRAME];
        head[4..8].copy_from_slice(&kind.to_le_bytes());
        head[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[12..].copy_from_slice(&(raw as u32).to_le_bytes());
        let crc = frame_crc(self.seed, self.offset, &head[4..], payload);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(payload)?;
        self.offset += (FRAME + payload.len()) as u64;
        Ok(crc)
    }
}

/// Reads a backup, each piece checked before it is given.
pub struct Reader<R: Read> {
    input: R,
    decompressor: zstd::bulk::Decompressor<'static>,
    header: Header,
    seed: u32,
    offset: u64,
    frames: u64,
    bytes: u64,
    checksum: u32,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn open(mut input: R) -> Result<Reader<R>, BackupError> {
        let mut head = vec![0; PREFIX];
        let found = fill(&mut input, &mut head)?;
        if found < MAGIC.len() || head[..8] != MAGIC {
            return Err(BackupError::Foreign);
        }
        let cut = |found: usize| BackupError::Cut { offset: found as u64 };
        if found < PREFIX {
            return Err(cut(found));
        }
        let (version, len) = (u32_at(&head, 8), u32_at(&head, 12));
        if version > VERSION {
            return Err(BackupError::Newer { found: version });
        }
        let damaged =
            |offset: usize, what: &str| BackupError::Damaged { offset: offset as u64, what: what.to_owned() };
        if version == 0 || len > LONGEST_HEADER {
            return Err(damaged(8, "the header is none that Quorate writes"));
        }
        head.resize(PREFIX + len as usize + 4, 0);
        let found = PREFIX + fill(&mut input, &mut head[PREFIX..])?;
        if found < head.len() {
            return Err(cut(found));
        }
        let end = head.len() - 4;
        let seed = crc32c::crc32c(&head[..end]);
        if u32_at(&head, end) != seed {
            return Err(damaged(PREFIX, "the header's checksum is wrong"));
        }
        let header = Header::from_bytes(Bytes::copy_from_slice(&head[PREFIX..end]))
            .map_err(|error| damaged(PREFIX, &format!("the header cannot be read: {error}")))?;
        let (decompressor, offset) = (zstd::bulk::Decompressor::new()?, head.len() as u64);
        Ok(Reader { input, decompressor, header, seed, offset, frames: 0, bytes: 0, checksum: 0 })
    }

    /// What the backup is of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes of the file that have been read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece of the image; `None` after the last, if the file ends as it should.
    pub fn piece(&mut self) -> Result<Option<Bytes>, BackupError> {
        let damaged = |offset: u64, what: &str| Err(BackupError::Damaged { offset, what: what.to_owned() });
        let start = self.offset;
        let mut head = [0; FRAME];
        let found = fill(&mut self.input, &mut head)?;
        if found < FRAME {
            return Err(BackupError::Cut { offset: start + found as u64 });
        }
        let (crc, kind) = (u32_at(&head, 0), u32_at(&head, 4));
        let (len, raw) = (u32_at(&head, 8) as usize, u32_at(&head, 12) as usize);
        if raw > LONGEST_PIECE || len > zstd::zstd_safe::compress_bound(LONGEST_PIECE) {
            return damaged(start, "a frame is longer than it can be");
        }
        let mut payload = vec![0; len];
        let found = fill(&mut self.input, &mut payload)?;
        if found < len {
            return Err(BackupError::Cut { offset: start + (FRAME + found) as u64 });
        }
        if frame_crc(self.seed, start, &head[4..], &payload) != crc {
            return damaged(start, "a frame's checksum is wrong");
        }
        self.offset += (FRAME + len) as u64;
        match kind {
            PIECE_KIND => {
                let piece = self.decompressor.decompress(&payload, raw);
                let Some(piece) = piece.ok().filter(|piece| piece.len() == raw) else {
                    return damaged(start, "a frame cannot be decompressed");
                };
                self.frames += 1;
                self.bytes += raw as u64;
                self.checksum = crc32c::crc32c_append(self.checksum, &crc.to_le_bytes());
                Ok(Some(piece.into()))
            }
            END_KIND if len == END => {
                let counted = (self.frames, self.bytes, self.checksum);
                if (u64_at(&payload, 0), u64_at(&payload, 8), u32_at(&payload, 16)) != counted {
                    return damaged(start, "frames are missing");
                }
                if fill(&mut self.input, &mut [0])? > 0 {
                    return damaged(self.offset, "something follows the end");
                }
                Ok(None)
            }
            _ => damaged(start, "a frame is of no known kind"),
        }
    }

    /// Reads the rest, and puts the state together. `each` is called after each piece, with the bytes read.
    pub fn load(mut self, mut each: impl FnMut(u64)) -> Result<(Header, Replicated), BackupError> {
        let mut loading = Loading::default();
        loop {
            let offset = self.offset;
            let refused = |LoadError(why): LoadError| BackupError::Damaged {
                offset,
                what: format!("the state cannot be loaded: {why}"),
            };
            match self.piece()? {
                Some(piece) => loading.push(piece).map_err(refused)?,
                None => return Ok((self.header, loading.finish().map_err(refused)?)),
            }
            each(self.offset);
        }
    }
}

fn frame_crc(seed: u32, offset: u64, head: &[u8], payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(seed, &offset.to_le_bytes()), head);
    crc32c::crc32c_append(crc, payload)
}

/// Reads as much as there is, up to the buffer's length.
fn fill(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match input.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            quorate: "0.1.0".to_owned(),
            protocol: "raft".to_owned(),
            cluster: 7,
            node: 2,
            position: 1234,
            taken_ms: 5,
        }
    }

    const PIECES: [&[u8]; 4] = [b"one", b"", &[7; 100_000], b"the last"];

    fn backup() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), &header()).unwrap();
        for piece in PIECES {
            writer.piece(piece).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Bytes>, BackupError> {
        let mut reader = Reader::open(bytes)?;
        assert_eq!(*reader.header(), header());
        let mut pieces = Vec::new();
        while let Some(piece) = reader.piece()? {
            pieces.push(piece);
        }
        Ok(pieces)
    }

    #[test]
    fn a_backup_gives_its_header_and_pieces_back() {
        let bytes = backup();
        assert!(bytes.len() < 1000, "{} bytes: what repeats is compressed", bytes.len());
        assert_eq!(read(&bytes).unwrap(), PIECES);
    }

    #[test]
    fn frames_that_no_writer_makes_are_refused_although_their_checksums_are_right() {
        type Change = fn(&mut Writer<Vec<u8>>);
        let cases: [(Change, &str); 7] = [
            (|writer| drop(writer.frame(PIECE_KIND, LONGEST_PIECE + 1, b"x")), "longer than it can be"),
            (
                |writer| {
                    let bytes = vec![0; zstd::zstd_safe::compress_bound(LONGEST_PIECE) + 1];
                    drop(writer.frame(PIECE_KIND, 1, &bytes));
                },
                "longer than it can be",
            ),
            (
                |writer| {
                    let compressed = writer.compressor.compress(b"abcd").unwrap();
                    drop(writer.frame(PIECE_KIND, 5, &compressed));
                },
                "a frame cannot be decompressed",
            ),
            (|writer| drop(writer.frame(END_KIND, 4, b"ends")), "a frame is of no known kind"),
            (|writer| drop(writer.frame(3, END, &[0; END])), "a frame is of no known kind"),
            (|writer| writer.frames += 1, "frames are missing"),
            (|writer| writer.bytes += 1, "frames are missing"),
        ];
        for (change, what) in cases {
            let mut writer = Writer::new(Vec::new(), &header()).unwrap();
            writer.piece(b"one").unwrap();
            change(&mut writer);
            let error = read(&writer.finish().unwrap()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}, not {what}");
        }
    }

    #[test]
    fn a_header_that_no_version_writes_is_refused_before_the_rest_is_read() {
        for (version, length) in [(0, 9), (VERSION, LONGEST_HEADER + 1)] {
            let head = [&MAGIC[..], &version.to_le_bytes(), &length.to_le_bytes()].concat();
            let error = read(&head).unwrap_err().to_string();
            assert!(error.contains("the header is none that Quorate writes"), "{error}");
        }
    }

    #[test]
    fn a_frame_of_another_backup_or_from_another_place_is_refused_where_it_is() {
        let written = |position, pieces: [&[u8]; 2]| {
            let mut writer = Writer::new(Vec::new(), &Header { position, ..header() }).unwrap();
            let begin = writer.progress().0 as usize;
            pieces.iter().for_each(|piece| writer.piece(piece).unwrap());
            let frame = (writer.progress().0 as usize - begin) / 2;
            (writer.finish().unwrap(), begin..begin + frame, begin + frame..begin + 2 * frame)
        };
        let (mine, first, second) = written(1234, [b"one", b"two"]);
        let (other, ..) = written(1235, [b"one", b"two"]);
        let foreign = [&mine[..first.start], &other[first.clone()], &mine[first.end..]].concat();
        let moved = [&mine[..first.start], &mine[second.clone()], &mine[first]].concat();
        for bytes in [foreign, moved] {
            let mut reader = Reader::open(&bytes[..]).unwrap();
            let error = reader.piece().unwrap_err().to_string();
            assert!(error.contains("a frame's checksum is wrong"), "{error}");
        }
        assert!(Reader::open(&mine[..]).unwrap().piece().unwrap().is_some());
        assert!(second.end < mine.len());
    }

    #[test]
    fn a_writer_makes_no_piece_that_readers_refuse_and_leaves_nothing_in_a_buffer() {
        let mut writer = Writer::new(io::BufWriter::new(Vec::new()), &header()).unwrap();
        assert!(writer.piece(&vec![0; LONGEST_PIECE + 1]).is_err());
        writer.piece(&vec![0; LONGEST_PIECE]).unwrap();
        assert!(writer.finish().unwrap().buffer().is_empty());
    }

    #[test]
    fn a_backup_that_is_cut_is_refused_wherever_it_is_cut_with_the_place() {
        let bytes = backup();
        for cut in 0..bytes.len() {
            match read(&bytes[..cut]) {
                Err(BackupError::Cut { offset }) => assert_eq!(offset, cut as u64),
                Err(BackupError::Foreign) => assert!(cut < 8),
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_changed_byte_is_found_wherever_it_is() {
        let bytes = backup();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(read(&changed).is_err(), "byte {at}");
        }
        assert!(
            matches!(read(&[&bytes[..], b"x"].concat()), Err(BackupError::Damaged { .. })),
            "something follows"
        );
    }

    #[test]
    fn a_backup_of_a_newer_version_and_other_files_are_refused_with_the_reason() {
        let mut newer = backup();
        newer[8] = VERSION as u8 + 1;
        let error = read(&newer).unwrap_err().to_string();
        assert!(error.contains("has format 2, this version of Quorate reads formats up to 1"), "{error}");
        let error = read(b"PK\x03\x04 and so on").unwrap_err().to_string();
        assert_eq!(error, "this is no backup that Quorate wrote");
    }

    #[test]
    fn each_cluster_that_begins_with_a_backup_has_an_id_of_its_own() {
        let id = |position, initial, token| Header { position, ..header() }.founded_cluster(initial, token);
        let ids = [id(1, 7, ""), id(2, 7, ""), id(1, 8, ""), id(1, 7, "again")];
        assert!((0..4).all(|one| (0..one).all(|other| ids[one] != ids[other])), "{ids:x?}");
        assert_eq!(ids[0], id(1, 7, ""), "and its members agree on it");
    }
}
