//! RFC 4180: commas separate fields, and a field that contains a comma, quote or line end is
//! quoted; bytes, not text. The first record names the fields.

/// Where inside a record the parser is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    FieldStart,
    Plain,
    Quoted,
    /// After a quote inside a quoted field: the end of the field, or half of an escaped quote.
    QuoteInQuoted,
}

/// The state of the record after a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fed {
    /// The record is whole.
    Record(Vec<Vec<u8>>),
    /// A quoted field continues in the next line.
    More,
    Malformed(String),
}

/// Reads records line by line.
#[derive(Debug, Default)]
pub struct Parser {
    fields: Vec<Vec<u8>>,
    field: Vec<u8>,
    state: State,
}

impl Parser {
    /// Takes the next line with its end.
    pub fn feed(&mut self, line: &[u8]) -> Fed {
        let body_len = super::lines::trim_end(line).len();
        for (i, byte) in line.iter().copied().enumerate() {
            if i >= body_len && self.state != State::Quoted {
                break;
            }
            if let Err(what) = self.take(byte) {
                *self = Parser::default();
                return Fed::Malformed(what);
            }
        }
        if self.state == State::Quoted {
            return Fed::More;
        }
        self.end_field();
        Fed::Record(std::mem::take(self).fields)
    }

    fn take(&mut self, byte: u8) -> Result<(), String> {
        self.state = match (self.state, byte) {
            (State::FieldStart, b'"') => State::Quoted,
            (State::FieldStart | State::Plain | State::QuoteInQuoted, b',') => {
                self.end_field();
                State::FieldStart
            }
            (State::Plain, b'"') => {
                return Err("a quote inside a field that does not begin with one".into());
            }
            (State::Quoted, b'"') => State::QuoteInQuoted,
            (State::QuoteInQuoted, b'"') | (State::Quoted, _) => {
                self.field.push(byte);
                State::Quoted
            }
            (State::QuoteInQuoted, _) => return Err("text behind a closing quote".into()),
            (State::FieldStart | State::Plain, _) => {
                self.field.push(byte);
                State::Plain
            }
        };
        Ok(())
    }

    fn end_field(&mut self) {
        self.fields.push(std::mem::take(&mut self.field));
    }
}

/// Appends a record.
pub fn write(fields: &[&[u8]], out: &mut Vec<u8>) {
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        if !field.iter().any(|byte| b",\"\r\n".contains(byte)) {
            out.extend_from_slice(field);
            continue;
        }
        out.push(b'"');
        for byte in *field {
            if *byte == b'"' {
                out.push(b'"');
            }
            out.push(*byte);
        }
        out.push(b'"');
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let nasty: [&[u8]; 5] = [b"", b"a,b", b"\"", b"l1\r\nl2\n\n", b"\xff\0 x"];
        let mut text = Vec::new();
        write(&nasty, &mut text);
        let mut parser = Parser::default();
        let mut lines = text.split_inclusive(|byte| *byte == b'\n');
        loop {
            match parser.feed(lines.next().expect("the record ends")) {
                Fed::More => continue,
                Fed::Record(fields) => {
                    assert_eq!(fields, nasty);
                    break;
                }
                Fed::Malformed(what) => panic!("{what}"),
            }
        }
        assert!(lines.next().is_none());
    }

    #[test]
    fn lines_of_the_rfc() {
        let fields = |line: &[u8]| Parser::default().feed(line);
        let two = |a: &[u8], b: &[u8]| Fed::Record(vec![a.to_vec(), b.to_vec()]);
        assert_eq!(fields(b"aaa,bbb\r\n"), two(b"aaa", b"bbb"));
        assert_eq!(fields(b"\"b \"\"x\"\"\",c"), two(b"b \"x\"", b"c"));
        assert_eq!(fields(b","), two(b"", b""));
        assert_eq!(fields(b"\"open"), Fed::More);
        assert!(matches!(fields(b"a\"b,c"), Fed::Malformed(_)));
        assert!(matches!(fields(b"\"a\" ,c"), Fed::Malformed(_)));
    }
}
